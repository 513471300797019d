import pickle, pickletools, numpy as np, torch, time, sys
from lerobot.async_inference.helpers import *
from lerobot.async_inference.helpers import RemotePolicyConfig
from lerobot.configs.types import PolicyFeature, FeatureType
feat={"observation.state":{"dtype":"float32","shape":(2,),"names":["a.pos","b.pos"]},"observation.images.top":{"dtype":"image","shape":(16,24,3),"names":["height","width","channels"]}}
p=RemotePolicyConfig("act","user/model",feat,50,"cpu")
p2=RemotePolicyConfig("act","user/model",{"observation.state":PolicyFeature(FeatureType.STATE,(2,))},50,"cpu",{"a":"b"})
o=TimedObservation(timestamp=1.5,timestep=3,observation={"a.pos":1.25,"b.pos":np.float32(2.5),"top":np.zeros((2,3,3),np.uint8),"task":"pick"},must_go=True)
acts=[TimedAction(timestamp=1+i/30,timestep=i,action=t) for i,t in enumerate(torch.arange(6,dtype=torch.float32).reshape(3,2))]
o5=pickle.dumps(o,5)
for n,x in dict(config=p,config2=p2,obs=o,actions=acts).items():
    b=pickle.dumps(x); open(n+".pkl","wb").write(b)
    print("=====",n,len(b)); pickletools.dis(b)
open("obs5.pkl","wb").write(o5); print("== obs5"); pickletools.dis(o5)
