"""Webhooks: their records, deliveries and signatures."""
