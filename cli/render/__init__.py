"""Values as people and programs read them: text tables, JSON documents, CSV, traces, pages."""
