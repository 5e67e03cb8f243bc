"""Helpers that programs started by the launcher import."""
