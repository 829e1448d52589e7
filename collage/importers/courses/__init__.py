"""What formats share of models whose course data choose: parts that are kept, and the whole.

Each format cuts its own graphs (``onnx/courses``, ``torch/courses``); what comes out is a
:class:`collage.course.Course` over parts that are models of their own.
"""
