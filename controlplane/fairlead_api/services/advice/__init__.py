"""Advice: what is known of the pools goes to `fairlead.advice`, and its findings out as resources."""
