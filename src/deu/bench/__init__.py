"""``deu bench``: the speed, memory and error of units beside other activations."""
