// Command hyperkube holds a whole Kubernetes in one binary: etcd, the control plane, the node agents, the cluster's DNS and
// kubectl. Each component is chosen by the name the binary is called by (a symbolic link), or by its first argument.
//
// One binary, because the components share most of their code: linking them together costs a fraction of seven builds.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// others are the components beside Kubernetes. Their own files add them, which a build of another Kubernetes release leaves
// out: etcd and the DNS server stay the same there.
var others = map[string]func(){}

// commands are the components of Kubernetes, all built on cobra.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	component := filepath.Base(os.Args[0])
	if _, ok := entryPoints()[component]; !ok && len(os.Args) > 1 {
		component, os.Args = os.Args[1], os.Args[1:]
	}
	run, ok := entryPoints()[component]
	if !ok {
		fmt.Fprintf(os.Stderr, "hyperkube: no component %q, only: %s\n", component, strings.Join(names(), ", "))
		os.Exit(2)
	}
	run()
}

func entryPoints() map[string]func() {
	all := maps.Clone(others)
	for name, command := range commands {
		all[name] = func() { os.Exit(cli.Run(command())) }
	}
	return all
}

func names() []string {
	all := []string{}
	for name := range entryPoints() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
