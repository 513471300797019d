device = object
dtype = object
