"""A third framework, whole: an adapter, a listing of its interface, and stand-alone scripts."""
