"""CPU steps in the operator's image: inspect, fetch, stage, publish and collect."""
