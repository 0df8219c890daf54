# Serves a module of actions. Ends, with all its child processes, when the parent process closes standard input or ends.
import os
import runpy
import signal
import sys
import threading


def watch():
    while os.read(0, 4096):
        pass
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


threading.Thread(target=watch, daemon=True).start()
sys.argv = ["rasa_sdk", "--actions", sys.argv[1], "--port", sys.argv[2]]
runpy.run_module("rasa_sdk", run_name="__main__", alter_sys=True)
