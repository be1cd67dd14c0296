"""Plans: DAGs of tasks, each a run; their records, and what is done to a plan as a whole."""
