"""The LLM judge: rubric and transcripts → prompt → reply → verdicts of a group."""
