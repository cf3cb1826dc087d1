"""Planning with language models: manuals, sandboxed reward code, judges (after SAMA)."""
