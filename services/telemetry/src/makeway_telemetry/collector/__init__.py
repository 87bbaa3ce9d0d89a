"""The collector: readings to Prometheus and to the database. Start at `app.Collector`."""
