"""Ranks as threads of one process, with a broadcast among them."""

import threading


class World:
    """`size` ranks; `run` calls a function of the rank and its broadcast in a thread each."""

    def __init__(self, size):
        self.size = size
        self.broadcasts = 0
        self._barrier = threading.Barrier(size)
        self._text = None

    def broadcast(self, rank):
        def broadcast(text, root):
            if rank == root:
                self._text = text
                self.broadcasts += 1
            self._barrier.wait(10)
            text = self._text
            self._barrier.wait(10)
            return text

        return broadcast

    def run(self, function):
        """Returns the results, or the exceptions, by rank."""
        results = [None] * self.size

        def call(rank):
            try:
                results[rank] = function(rank, self.broadcast(rank))
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results
