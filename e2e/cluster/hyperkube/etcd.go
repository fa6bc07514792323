package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func init() { others["etcd"] = func() { etcdmain.Main(os.Args) } }
