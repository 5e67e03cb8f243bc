"""Modules that elastic programs import: host discovery and settings."""
