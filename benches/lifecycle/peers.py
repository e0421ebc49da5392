"""The Python queues that handoffd is measured against: peers.py KIND ROLE FOLDER.

`submit` adds each line of its input as a job, words set apart by tabs; `work` does jobs, and adds
a byte to FOLDER/done for each.
"""

import os
import subprocess
import sys
import time

kind, role, folder = sys.argv[1:4]
done = os.open(os.path.join(folder, "done"), os.O_APPEND | os.O_CREAT | os.O_WRONLY)


def work_on(words):
    subprocess.call(words)
    os.write(done, b".")


if kind == "huey":
    from huey import FileHuey

    queue = FileHuey(path=os.path.join(folder, "queue"), results=False)

    @queue.task()
    def job(words):
        work_on(words)

    add = job

    def work():
        # As quick as it can be set: it looks every 5 ms, and 20 ms at most after a rest.
        queue.create_consumer(
            workers=2, periodic=False, initial_delay=0.005, backoff=1.15, max_delay=0.02
        ).run()

else:
    from dirq.QueueSimple import QueueSimple

    queue = QueueSimple(os.path.join(folder, "queue"))

    def add(words):
        queue.add("\t".join(words))

    def work():
        while True:
            found = False
            for name in queue:
                if queue.lock(name):
                    words = queue.get(name)
                    words = words.decode() if isinstance(words, bytes) else words
                    work_on(words.split("\t"))
                    queue.remove(name)
                    found = True
            if not found:
                time.sleep(0.05)


print("ready", flush=True)
if role == "work":
    work()
for line in sys.stdin:
    add(line.rstrip("\n").split("\t"))
