"""A worker process that runs libraries on another machine, through TVM's RPC server there."""
