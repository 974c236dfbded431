// Command kubernetes is every program of a Kubernetes node in one. It does what the name it is called
// by says: `kube-apiserver`, `kubelet`, `etcd`, and so on are links to it. Two are our own: `identities`
// writes the certificates of a new cluster, and `volume-provisioner` makes its volumes.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"identities":              newIdentitiesCommand,
	"volume-provisioner":      newProvisionerCommand,
}

func main() {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		command, known := commands[name]
		if !known {
			fmt.Fprintf(os.Stderr, "%q is not a name of this program: call it as etcd, kubectl, kubelet, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, identities or volume-provisioner\n", name)
			os.Exit(2)
		}
		os.Exit(cli.Run(command()))
	}
}
