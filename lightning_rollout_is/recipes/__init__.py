"""Complete small jobs built on the rest of the package: a language model, a rollout engine, and a task with a score."""
