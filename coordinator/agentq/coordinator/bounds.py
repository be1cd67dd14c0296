"""Every limit, in one place. Input that exceeds one is refused with a sentence that names it."""

from __future__ import annotations

NAME_LENGTH = 128
"""Characters of a queue, a plan, a session, a label or a demand."""
DEDUPE_KEY_LENGTH = 512
LABELS = 64
DEMANDS = 16
ALTERNATIVES = 16
"""Values of which a demand says that one of them will do."""
PRIORITY_MAX = 9
"""0 is the least urgent, 9 the most, 5 the default."""
PARTITIONS = 1024

PROMPT_BYTES = 4 << 20
STDIN_BYTES = 4 << 20
ARGUMENTS_BYTES = 1 << 20
"""A command line, or the JSON of a function's arguments."""
ENVIRONMENT_BYTES = 256 << 10
SPEC_BYTES = 16 << 20
RESULT_BYTES = 1 << 20
RESULT_INLINE_BYTES = 64 << 10
"""A function's result of up to this size stays with its run, where large ones have a store."""
PICKLE_KEY_BYTES_MIN = 32
TAIL_CHARACTERS = 16 << 10
ERROR_CHARACTERS = 4 << 10
PROGRESS_BYTES = 1 << 10
IDENTITY_BYTES = 16 << 10

REFERENCE_CHARACTERS = 1024
"""Of a repository's address, a branch, or another name of a commit."""
WORKSPACE_PATHS = 1000
WORKSPACE_PORTS = 32
REPAIR_ROUNDS_MAX = 20
"""How often a conflict, or a check that fails, may go back to be repaired."""
PLAN_TASKS = 100_000
PLAN_SOURCE_BYTES = 8 << 20
"""What a plan was made from, compressed."""
PLAN_RECHECK_MS = 3_600_000
"""A task that has ended is kept while its plan goes on; after so long it is looked at again."""
MERGE_PROGRESS_BYTES = 2 << 20
"""What an attempt notes of its workspace, with the outcome of its process."""
MERGE_QUEUE_SHOWN = 64
"""How many of a merge line are named to whose turn it is."""
INPUTS = 100
"""Runs whose outcomes may stand in a run's prompt or command line."""

LOG_BYTES = 2 << 20
"""What the server keeps of what a run writes: the newest. The whole is in a file on the worker."""
LOG_ENTRIES = 10_000
LOG_CHUNK_CHARACTERS = 8 << 10
LOG_CHUNKS_PER_CALL = 1000

QUEUES = 10_000
"""Queues of a partition that have runs, if nothing else is set."""
SESSIONS = 100_000
"""Sessions of a partition, those closed in the last week among them, if nothing else is set."""
SCHEDULES = 10_000
"""Schedules of a partition, if nothing else is set."""
TOKEN_ITEMS_PER_CALL = 100
"""Of what a token has made, how much is looked for in one call when it has made as much as it may."""
TOKEN_ITEMS_KEPT_MS = 30 * 24 * 3600 * 1000
"""How long it is remembered what a token has made, after the last of it."""
QUEUES_PER_CALL = 100
"""Queues whose runs one call counts."""
QUEUES_PER_PAGE = 1000
DEPENDENCIES_PER_CALL = 1000
"""Dependencies in one call; a run with more is submitted in several, unseen by the façade's callers."""
SUBMIT_PER_CALL = 1000
TASKS_PER_CALL = 100
"""Tasks of a plan in one call: each has dependencies to look at."""
CLAIM_PER_CALL = 1000
LIST_PER_CALL = 1000
RESPONSE_BYTES = 8 << 20
"""Of whole runs in one answer of the server; once it is so large, the rest is left for the next."""
WORKERS_LISTED_PER_CALL = 200
"""Workers that one call tells of."""
DEPENDENTS_PER_CALL = 50
"""Dependents that one script settles, or tasks of a plan; the rest is left to the duties, which go on where it stopped.
So many take a few milliseconds."""
RETRIED_TASKS_PER_CALL = 40
"""Ended tasks of a plan that one script lets begin again, each with its dependencies to look at."""
TICK_PER_CALL = 250
SWEEP_PER_CALL = 200
WORKERS_PER_CALL = 10
"""Lost workers that one call of the reaper sweeps: each of them may have left something in any lane."""
INSPECT_PER_CALL = 500
LANE_HEAD_PER_CALL = 10
"""Entries at the head of a lane that the janitor looks at; one that stands for nothing keeps all after it."""
DROP_PER_CALL = 1000
"""Entries of cancelled runs that one claim throws away on its way to a live one."""

FEW_ENTRIES = 8
"""Up to so many entries of a lane are deleted one by one."""
RQ_KILL_MS = 60_000
"""How long after its own timeout a job of RQ is ended by force, as by RQ's workers."""

ATTEMPTS_KEPT = 100
EVENTS_KEPT = 50_000
"""Entries; each is of one run, or of several to which the same happened in one call."""
EVENTS_PER_ENTRY = 20
RETRIES_MAX = 10_000
DELAYS = 100
"""Waits that a policy can list one by one."""

DELAY_MS_MAX = 10 * 366 * 86_400_000
DUE_AT_MS_MAX = (1 << 45) - 1
"""The year 3084, the last that an id can tell."""
FAILURES = 0
CRASHES = 3
DEFERRALS = 100
LOSSES_BEFORE_START = 20
"""How often a function run may be lost that was not said to have begun, at no cost to its crash budget. Nearly all of
them have only waited behind others; but one that kills its whole worker within milliseconds must have an end, too."""
DELAY_MS = 1_000
DELAY_FACTOR = 2
BACKOFF_MS_MAX = 300_000
WORKTREE_BYTES = 20 << 30
"""What the worktrees of a worker may take of its disk, if nothing else is set."""
KEEP_MS = 7 * 86_400_000
"""How long an ended run can be looked up, unless its spec says otherwise."""
KEEP_MS_MIN = 60_000
"""Nothing that has ended is forgotten sooner: a submit that is sent again must find its run, or it would begin anew."""
OPEN_SUBMIT_MS = 60_000
"""A submit in several calls that takes longer than this was abandoned."""
STOP_DEADLINE_MS = 60_000
"""A stop order that is not confirmed for so long is taken as carried out; the attempt is fenced."""
START_DEADLINE_MS = 600_000
"""A claimed run that its worker has not started for so long is taken away from it."""
STOP_GRACE_MS = 10_000
WORKER_RECORD_MS = 3_600_000
"""How long the record of a worker that is gone is kept, so that it learns why it is refused."""
LOW_PRIORITY_EVERY = 10
"""One claimed run in so many is taken from one of the less urgent lanes, in turn, so that none starves."""
LANE_TURNS = LOW_PRIORITY_EVERY * 5040
"""After how many claimed runs the turns of the less urgent lanes begin again; up to ten of them come out even."""
ADMITTED_PER_CALL = 100
"""Runs that one script lets in under limits that have room again; a timer goes on with the rest."""
LIMITS_PER_RUN = 16
LIMIT_SHUT_MS_MAX = 6 * 3_600_000
"""How far ahead a worker at a coordinator may shut an account; one whose limit lasts longer is shut again."""
UNITS_MAX = 1_000_000_000_000

TRANSCRIPT_BYTES = 8 << 20
"""A transcript, compressed, that travels to other hosts; with a larger one, a conversation stays where it is."""
SPENT_USD_MAX = 1e9
SPENT_COUNT_MAX = 1 << 50
"""Of tokens and turns: what a script can still add up exactly."""
CONVERSATION_FIELD_CHARACTERS = 512
"""What an agent tells of its conversation: its id, its model."""
TOTALS_BYTES = 4 << 10

SIGNALS_PER_WAIT = 16
"""Names of signals that a run may wait for at once."""
SIGNAL_BYTES = 64 << 10
SENDER_CHARACTERS = 200
PENDING_SIGNALS = 100
"""Signals that a run may have and not have taken; more are refused until it takes some."""
SIGNALS_REMEMBERED = 1_000
"""Operation ids of signals kept with a run, so that one that is sent again is known; the newest."""
PARKED_STATE_BYTES = 64 << 10
"""What a run may save of its own when it parks."""
OBJECT_MEMBERS = 65_536
"""Of one object in a request, where it is not free JSON such as the arguments of a function."""
JSON_ITEMS_MAX = 600_000
"""Of lists in a request, and three for each member of an object: more than one run has. While they are
read, others wait."""
INPUT_ERRORS = 1_000
"""Of one request; of more none is described, since that takes time for each."""
MAY_SUBMIT = 32
CHILD_DEPTH_MAX = 5
"""How deep an agent may have children that are agents and have children."""
CHILDREN_PER_AGENT = 200
"""How many children an agent may have that are live, or have ended without its having heard of that."""
CHILDREN_PER_RUN = 10_000
"""Children that are live, or have ended and are not yet reported to their parent."""
CHILDREN_PER_CALL = 500
ENDED_CHILDREN_BYTES = 256 << 10
"""Of children's outcomes in one call; at least one is told."""
CHILD_RESULT_BYTES = 16 << 10
"""A child's result of up to this size is told to its parent; of a larger one, only its size."""
CRON_LENGTH = 256
EVERY_MS_MIN = 1_000
TICK_DELAY_MS_MAX = 120_000
"""How late a tick may come and still run, where its schedule does not catch up: twice the time between two rounds of a
scheduler that cron starts once a minute."""
CATCH_UP_MS_MAX = 31 * 86_400_000
JITTER_MS_MAX = 86_400_000
SCHEDULE_FAULT_MS = 60_000
"""After how long a schedule whose next tick could not be computed is tried again."""
OVERLAP_PER_CALL = 100
"""Runs that a schedule has live before it makes no more, whatever its policy; and that one tick cancels."""
HISTORY_KEPT = 100
DUE_PER_CALL = 500

NOTES_BYTES = 1 << 20
"""What the submitter of a run wants to find again with it."""
DIALECT_EVENTS_KEPT = 10_000
"""Events of a session that foreign executors tell."""
DIALECT_EVENT_BYTES = 256 << 10
"""Of one such event, or of one fact about a session."""
DIALECT_EVENTS_BYTES = 32 << 20
"""Of all events of a session."""
DIALECT_RUNNER_MS = 31 * 86_400_000
"""How long foreign runners, and what they say of sessions, are remembered after they were last heard of."""
BLUEPRINTS_KEPT = 500
"""Blueprints, capabilities, scripts and servers of tools."""
BLUEPRINT_BYTES = 256 << 10
"""Of one of them."""
PLAN_BYTES = 64 << 20
"""Of a plan file; and of all that is written out of it."""
PLAN_EDGES = 1_000_000
PLAN_FILES = 1_000
MATRIX_TASKS = 10_000
"""Tasks that one task is spread out to."""

WEBHOOKS = 100
"""Of a namespace."""
URL_CHARACTERS = 2_000
FILTER_VALUES = 100
"""Names that one part of a filter of events may list."""
DELIVERIES_KEPT = 200
"""Attempts in the log of a webhook."""
REDELIVERIES = 100
"""Messages that clients requested and that wait for delivery to a webhook."""
WEBHOOK_DELAY_MS = 5_000
WEBHOOK_DELAY_FACTOR = 3
WEBHOOK_DELAY_MS_MAX = 3_600_000
"""Between two tries of a message; half of it is left to chance."""
WEBHOOK_FAILURES = 10
WEBHOOK_FAILING_MS = 3 * 86_400_000
"""A webhook that has failed so often in a row, and for so long, is disabled."""
SECRET_OVERLAP_MS = 86_400_000
"""For how long the secret before signs, too."""
SECRET_OVERLAP_MS_MAX = 30 * 86_400_000
TOKEN_KEPT_MS = 7 * 86_400_000
"""How long a token of the server that has expired is still listed."""
TOKEN_USED_MS = 60_000
"""How often its last use is noted, at the most."""
IDEMPOTENCY_KEY_MS = 86_400_000
"""How long an Idempotency-Key is known."""
