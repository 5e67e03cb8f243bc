"""Logs of a job's processes, read while it runs."""

import json


class Process:
    """Events of one process, in order."""

    def __init__(self, pid):
        self.pid = pid
        self.events = []

    def all(self, event):
        return [record for record in self.events if record["event"] == event]

    def first(self, event):
        return next((record for record in self.events if record["event"] == event), None)


class Generation:
    """Processes that trained together, by rank. `began`: time of the first one's start."""

    def __init__(self, name, size):
        self.name, self.size = name, size
        self.members = {}
        self.began = float("inf")
        self.first_done = None
        self.last_done = None


class Logs:
    """All processes of a job."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = {}
        self._files = {}

    def update(self):
        """Reads what was added. A line that is not complete is left for the next time."""
        for path in self.folder.glob("*.jsonl"):
            pid = int(path.stem)
            file = self._files.get(pid) or self._files.setdefault(pid, open(path, "rb"))
            process = self.processes.setdefault(pid, Process(pid))
            while True:
                position = file.tell()
                line = file.readline()
                if not line.endswith(b"\n"):
                    file.seek(position)
                    break
                process.events.append(json.loads(line))

    def close(self):
        for file in self._files.values():
            file.close()

    def generations(self):
        """Generations in the order in which they began."""
        found = {}
        for process in self.processes.values():
            current = None
            for record in process.events:
                if record["event"] == "begin":
                    name = record["generation"]
                    current = found.setdefault(name, Generation(name, record["size"]))
                    current.members[record["rank"]] = process.pid
                    current.began = min(current.began, record["t"])
                elif record["event"] == "done" and current is not None:
                    time = record["t"]
                    current.first_done = min(current.first_done or time, time)
                    current.last_done = max(current.last_done or time, time)
        return sorted(found.values(), key=lambda generation: generation.began)
