"""The pages: each reads models and stores, listens to the session, and says what a person wants."""
