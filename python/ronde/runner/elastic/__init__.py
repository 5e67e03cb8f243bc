"""What programs for elastic jobs import: hosts that come and go, and settings."""
