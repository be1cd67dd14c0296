"""The entry point of the command `agentq`: Ctrl-C while it is loading ends it at once and without a traceback.

Python would raise KeyboardInterrupt in the middle of an import. The system's own way holds until the command that was
asked for is loaded; see `main`. A Ctrl-C that the caller has ignored, as `nohup` does, stays ignored.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from agentq.cli.main import app as app
