"""onnxruntime's operators, the domain ``com.microsoft``."""
