"""`python -m trtllm_operator.front`: the endpoint of one LLMEngine."""

from .main import main

raise SystemExit(main())
