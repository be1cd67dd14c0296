"""The physical limit: redis-py + hiredis on one stream, no features at all.

Profiles: fast = XREADGROUP COUNT 100, then one pipeline of XACK+XDEL for the
whole batch; one = COUNT 100, but an XACK and an XDEL round trip per job;
result = as fast, plus SET <result> EX for every job in the pipeline.
"""

from contextlib import suppress

from producing import HOST, PORT, PROFILE, Producer, crash_body, record

META = {
    "name": "raw",
    "packages": ["redis", "hiredis", "uvloop"],
    "module": "peer_raw",
    "variants": {
        "raw": {"profile": "fast", "n_drain": 200_000},
        "raw-result": {"profile": "result", "n_drain": 200_000, "only": ["drain"], "skip": ["enqueue"]},
        "raw-unpiped": {"profile": "one", "only": ["drain"], "skip": ["enqueue"]},
    },
    "dist": "redis",
    "settings": "redis-py+hiredis, XREADGROUP COUNT 100 BLOCK, one pipeline XACK+XDEL per batch",
    "retention": "none (XDEL)",
}
S, G = b"raw:s", b"raw:g"


def conn():
    import redis

    r = redis.Redis(host=HOST, port=PORT, protocol=2)
    r.response_callbacks.pop("XREADGROUP", None)  # the reply as it came
    return r


def ensure_group(r):
    import redis

    with suppress(redis.ResponseError):  # it is there
        r.xgroup_create(S, G, id="0", mkstream=True)


class P(Producer):
    has_bulk = True

    def open(self):
        self.r = conn()
        ensure_group(self.r)

    def one(self, i):
        self.r.execute_command("XADD", S, "*", "f", "noop", "a", i)

    def bulk(self, ids):
        p = self.r.pipeline(transaction=False)
        for i in ids:
            p.execute_command("XADD", S, "*", "f", "noop", "a", i)
        p.execute()

    def crash(self, i):
        self.r.execute_command("XADD", S, "*", "f", "crash", "a", i)

    def close(self):
        self.r.close()


def make_producer():
    return P()


def worker():
    r = conn()
    ensure_group(r)
    one, result = PROFILE == "one", PROFILE == "result"
    funcs = {b"noop": record, b"crash": crash_body}
    while True:
        got = r.execute_command("XREADGROUP", "GROUP", G, "c1", "COUNT", 100, "BLOCK", 5000, "STREAMS", S, ">")
        if not got:
            continue
        entries = got[0][1]
        done = []
        for eid, f in entries:
            funcs[f[1]](int(f[3]))
            if one:
                r.execute_command("XACK", S, G, eid)
                r.execute_command("XDEL", S, eid)
            else:
                done.append(eid)
        if done:
            p = r.pipeline(transaction=False)
            if result:
                for eid in done:
                    p.execute_command("SET", b"raw:r:" + eid, b"null", "EX", 600)
            p.execute_command("XACK", S, G, *done)
            p.execute_command("XDEL", S, *done)
            p.execute()
