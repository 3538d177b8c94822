"""What runs beside the engine: a local Apache Kafka, the container image, dashboards, manifests."""
