"""What people read: pages and tables written from verdicts and records."""
