"""Helpers of Horovod's launcher that scripts and test suites import."""
