"""A reference server: transformers' own models behind SGLang's ``/generate``, token ids in and out."""
