"""Small models under parallel plans, as a user of torch writes them. See `cases.recipes`."""
