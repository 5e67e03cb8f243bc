"""Code that does not depend on the framework: init and shutdown, process sets, exceptions."""
