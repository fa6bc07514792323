package main

import (
	"fmt"
	"os"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() { others["coredns"] = runDNS }

// runDNS serves the Corefile named by the first argument, with the few plugins a cluster's names need.
//
// It starts the server without the coremain package of CoreDNS, which defines process-wide flags (-conf, -p, -version) that
// would show up in every other component of this binary.
func runDNS() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: coredns COREFILE")
		os.Exit(2)
	}
	if err := serveDNS(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "coredns:", err)
		os.Exit(1)
	}
}

func serveDNS(path string) error {
	contents, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	caddy.Quiet, dnsserver.Quiet = true, true
	caddy.TrapSignals()
	server, err := caddy.Start(caddy.CaddyfileInput{Contents: contents, Filepath: path, ServerTypeName: "dns"})
	if err != nil {
		return err
	}
	server.Wait()
	return nil
}
