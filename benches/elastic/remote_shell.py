"""Plays ssh's part between hosts that are network namespaces: a command's input and output pass
over TCP, and so end with the network.

    remote_shell.py ADDRESS SPACE COMMAND    # runs COMMAND in the shell of a namespace
"""

import os
import pathlib
import socket
import subprocess
import sys
import threading

MULTIHOST = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "multihost"
SERVE = "--serve"


def serve(address, command):
    """Prints a port, waits for the connection, and runs the command with it."""
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection = listener.accept()[0]
    process = subprocess.Popen(["sh", "-c", command], stdin=connection, stdout=connection)
    connection.close()
    return process.wait()


def copy(source, sink, end):
    while data := source():
        sink(data)
    end()


def write(data):
    while data:
        data = data[os.write(1, data) :]


def main():
    if sys.argv[1] == SERVE:
        sys.exit(serve(*sys.argv[2:]))
    address, space, command = sys.argv[1:]
    inside = [sys.executable, __file__, SERVE, address, command]
    server = subprocess.Popen(
        [MULTIHOST, "enter", space, *inside], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    port = int(server.stdout.readline())
    connection = socket.create_connection((address, port))
    forward = threading.Thread(
        target=copy,
        args=(
            lambda: os.read(0, 65536),
            connection.sendall,
            lambda: connection.shutdown(socket.SHUT_WR),
        ),
        daemon=True,
    )
    forward.start()
    copy(lambda: connection.recv(65536), write, lambda: None)
    sys.exit(server.wait())


if __name__ == "__main__":
    main()
