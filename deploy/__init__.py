"""Everything beside the engine: a local Apache Kafka, container image, dashboards, manifests."""
