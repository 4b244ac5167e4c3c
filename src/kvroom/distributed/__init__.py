"""Work that is spread over processes or machines: units, their journal, and a simulation cut into parts."""
