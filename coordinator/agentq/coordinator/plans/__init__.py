"""Plans: DAGs of tasks, each a run; their records and verbs."""
