"""CPU steps in the operator's image: inspect, digest, fetch, stage, provide, publish, check and collect."""
