//! A placeholder replaced by the tuner.
