"""What Ronde's front ends share: joining a job, process sets, exceptions."""
