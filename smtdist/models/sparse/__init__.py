"""L1 sparse coding with overcomplete dictionaries (Chen, Paiton and Olshausen 2018), as a model and as codes of an SMT."""
