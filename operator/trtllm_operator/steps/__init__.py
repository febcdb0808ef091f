"""CPU steps in the operator's image: inspect, fetch, stage, provide, publish, check and collect."""
