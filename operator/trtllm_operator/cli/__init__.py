"""`llmengine` (and `kubectl llmengine`): the planner on a laptop. What takes time to import is imported when used."""
