"""rq: Worker (a fork per job) and SimpleWorker (in process)."""

from producing import HOST, PORT, PROFILE, Producer, crash_body, record

META = {
    "name": "rq",
    "packages": ["rq", "redis", "hiredis"],
    "module": "peer_rq",
    "variants": {
        "rq": {"profile": "fast", "n_drain": 800, "n_latency": 300},
        "rq-simple": {"profile": "simple", "n_drain": 5000, "skip": ["enqueue", "crash"]},
    },
    "dist": "rq",
    "settings": (
        "hiredis, job module preloaded before the fork, log level WARNING, job description log off; result_ttl "
        "500 s (default)"
    ),
    "durable": "Retry(max=3), worker_ttl=20, job_monitoring_interval=5, maintenance_interval=5",
    "retention": "job hash + result stream 500 s",
}


def noop(i):
    record(i)
    return i


def crash(i):
    crash_body(i)
    return i


def conn():
    import redis

    return redis.Redis(host=HOST, port=PORT)


class P(Producer):
    has_bulk = True

    def open(self):
        import rq

        self.rq = rq
        self.q = rq.Queue("default", connection=conn())

    def one(self, i):
        self.q.enqueue(noop, i)

    def bulk(self, ids):
        self.q.enqueue_many([self.rq.Queue.prepare_data(noop, (i,)) for i in ids])

    def crash(self, i):
        retry = self.rq.Retry(max=3) if PROFILE == "durable" else None
        self.q.enqueue(crash, i, retry=retry)


def make_producer():
    return P()


def worker():
    import rq

    cls = rq.SimpleWorker if PROFILE == "simple" else rq.Worker
    kw = {}
    if PROFILE == "durable":
        kw = {"worker_ttl": 20, "job_monitoring_interval": 5, "maintenance_interval": 5}
    c = conn()
    w = cls([rq.Queue("default", connection=c)], connection=c, log_job_description=False, **kw)
    w.work(logging_level="WARNING")
