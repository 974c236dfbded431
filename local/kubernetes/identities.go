package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

const (
	validity = 10 * 365 * 24 * time.Hour
	admins   = "system:masters"
)

// A client is somebody who talks to the API server, with a kubeconfig of their own.
type client struct{ file, user, group string }

// identities writes the certificates, keys and kubeconfigs of a one-node cluster. The cluster lives
// on one machine and in one network namespace, and its authority is thrown away with it.
type identities struct {
	directory string
	node      string
	addresses []net.IP
	server    string

	authority *x509.Certificate
	signer    crypto.Signer
}

func newIdentitiesCommand() *cobra.Command {
	var i identities
	command := &cobra.Command{
		Use:   "identities",
		Short: "Writes the certificates and kubeconfigs of a new cluster",
		RunE:  func(*cobra.Command, []string) error { return i.write() },

		SilenceUsage: true,
	}
	command.Flags().StringVar(&i.directory, "directory", "", "where to write the files")
	command.Flags().StringVar(&i.node, "node", "", "the name of the node")
	command.Flags().IPSliceVar(&i.addresses, "address", nil, "an address of the API server and the kubelet (repeatable)")
	command.Flags().StringVar(&i.server, "server", "", "the API server's URL")
	return command
}

func (i *identities) write() error {
	if err := os.MkdirAll(i.directory, 0o700); err != nil {
		return err
	}
	if err := i.writeAuthority(); err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	if err := errors.Join(i.writeServiceAccountKey(), i.writeServers()); err != nil {
		return err
	}
	for _, c := range []client{
		{"controller-manager.kubeconfig", "system:kube-controller-manager", ""},
		{"scheduler.kubeconfig", "system:kube-scheduler", ""},
		{"proxy.kubeconfig", "system:kube-proxy", ""},
		{"kubelet.kubeconfig", "system:node:" + i.node, "system:nodes"},
		{"dns.kubeconfig", "karst:dns", admins},
		{"volumes.kubeconfig", "karst:volumes", admins},
		{"admin.kubeconfig", "karst:admin", admins},
	} {
		if err := i.writeKubeconfig(c); err != nil {
			return err
		}
	}
	return nil
}

func (i *identities) writeAuthority() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	template := newTemplate(pkix.Name{CommonName: "karst-local"})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if i.authority, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	i.signer = key
	return i.writePair("ca", der, key)
}

// writeServiceAccountKey writes the pair with which the API server signs and checks tokens of pods.
func (i *identities) writeServiceAccountKey() error {
	key, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return errors.Join(
		i.writeFile("service-accounts.key", private),
		i.writeFile("service-accounts.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	)
}

func (i *identities) writeServers() error {
	api := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	api.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	api.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1)}, i.addresses...)
	api.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	kubelet := newTemplate(pkix.Name{CommonName: "system:node:" + i.node, Organization: []string{"system:nodes"}})
	kubelet.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	kubelet.IPAddresses = i.addresses
	kubelet.DNSNames = []string{i.node}
	towardsKubelet := newTemplate(pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{admins}})
	towardsKubelet.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return errors.Join(
		i.writeSigned("apiserver", api),
		i.writeSigned("kubelet", kubelet),
		i.writeSigned("apiserver-kubelet-client", towardsKubelet),
	)
}

func (i *identities) writeKubeconfig(c client) error {
	subject := pkix.Name{CommonName: c.user}
	if c.group != "" {
		subject.Organization = []string{c.group}
	}
	template := newTemplate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	der, key, err := i.sign(template)
	if err != nil {
		return err
	}
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	const name = "karst"
	config := clientapi.NewConfig()
	config.Clusters[name] = &clientapi.Cluster{Server: i.server, CertificateAuthorityData: certificatePEM(i.authority.Raw)}
	config.AuthInfos[name] = &clientapi.AuthInfo{ClientCertificateData: certificatePEM(der), ClientKeyData: private}
	config.Contexts[name] = &clientapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, filepath.Join(i.directory, c.file))
}

func (i *identities) writeSigned(name string, template *x509.Certificate) error {
	der, key, err := i.sign(template)
	if err != nil {
		return err
	}
	return i.writePair(name, der, key)
}

func (i *identities) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.authority, key.Public(), i.signer)
	return der, key, err
}

func (i *identities) writePair(name string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return errors.Join(i.writeFile(name+".crt", certificatePEM(der)), i.writeFile(name+".key", private))
}

func (i *identities) writeFile(name string, content []byte) error {
	return os.WriteFile(filepath.Join(i.directory, name), content, 0o600)
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func newTemplate(subject pkix.Name) *x509.Certificate {
	// A serial number of the clock is unique enough for an authority of a dozen certificates.
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      subject,
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
