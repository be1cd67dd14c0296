"""The reaper and the schedules of agentq, ticked by RQ's own cron: `rq cron deploy/rq_cron.py`.

Where `rq cron` runs anyhow, this is the line for cron of deploy/crontab: a safety net for the time when no worker of
agentq lives. It needs a worker for its queue, as `rq worker agentq-maintenance`, on another machine at best: a reaper
that runs in the worker that died helps nobody. Any number of crons may run; ticks that come too soon after one another
do nothing.
"""

from __future__ import annotations

import os

from rq import cron

from agentq.worker.rq.cron import reap, tick

QUEUE = os.environ.get("AGENTQ_RQ_CRON_QUEUE", "agentq-maintenance")
SECONDS = int(os.environ.get("AGENTQ_RQ_CRON_S", "30"))

# A tick that nobody executed before the next one is due is worth nothing, and its result tells nobody anything.
cron.register(reap, QUEUE, interval=SECONDS, ttl=SECONDS, result_ttl=0, job_timeout=300, name="agentq.reap")
cron.register(tick, QUEUE, interval=SECONDS, ttl=SECONDS, result_ttl=0, job_timeout=300, name="agentq.tick")
