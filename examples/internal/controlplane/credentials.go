package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/csv"
	"fmt"
	"net"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
)

// Names of files in the control plane's folder.
const (
	servingCertFile       = "apiserver.crt"
	servingKeyFile        = "apiserver.key"
	serviceAccountKeyFile = "service-account.key"
	tokenFile             = "tokens.csv"
)

// users are those who authenticate with a static token. A kubeconfig file is made for each, called after the component.
// Schedulers are not among them: they use service accounts.
var users = []struct{ component, name, group string }{
	{"admin", "admin", "system:masters"},
	{controllerManagerComponent, "system:kube-controller-manager", ""},
	{kwokComponent, "kwok", "system:masters"},
}

// tokenSeconds is the lifetime of a service account's token: longer than any control plane is meant to live.
const tokenSeconds = 7 * 24 * 60 * 60

// createCredentials writes the API server's serving certificate, the key for service account tokens, the static tokens
// and the kubeconfig files of their users.
func (cp *ControlPlane) createCredentials() error {
	cert, key, err := certutil.GenerateSelfSignedCertKey(
		"127.0.0.1",
		[]net.IP{net.IPv4(127, 0, 0, 1)},
		[]string{"localhost"},
	)
	if err != nil {
		return fmt.Errorf("creating the API server's certificate: %w", err)
	}
	cp.caData = cert // the certificate is followed by that of the authority that signed it
	serviceAccountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("creating the key for service account tokens: %w", err)
	}

	var tokens bytes.Buffer
	csvWriter := csv.NewWriter(&tokens)
	for _, user := range users {
		token := rand.Text()
		if err := csvWriter.Write([]string{token, user.name, user.name, user.group}); err != nil {
			return fmt.Errorf("writing tokens: %w", err)
		}
		if _, err := cp.writeKubeconfig(user.component, token); err != nil {
			return err
		}
	}
	csvWriter.Flush()

	for name, data := range map[string][]byte{
		servingCertFile:       cert,
		servingKeyFile:        key,
		serviceAccountKeyFile: serviceAccountKey,
		tokenFile:             tokens.Bytes(),
	} {
		if err := os.WriteFile(cp.file(name), data, 0o600); err != nil {
			return fmt.Errorf("writing credentials: %w", err)
		}
	}
	return nil
}

// ServiceAccountKubeconfig asks the API server for a token of a service account, which must exist, and returns the path
// of a kubeconfig file that authenticates with it, as the user system:serviceaccount:NAMESPACE:NAME.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}
	request, err := cp.client.CoreV1().ServiceAccounts(
		namespace,
	).CreateToken(
		ctx,
		name,
		request,
		metav1.CreateOptions{},
	)
	if err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s: %w", namespace, name, err)
	}
	return cp.writeKubeconfig(namespace+"-"+name, request.Status.Token)
}

// kubeconfigPath returns the path of the kubeconfig file of that name.
func (cp *ControlPlane) kubeconfigPath(name string) string {
	return cp.file(name + ".kubeconfig")
}

func (cp *ControlPlane) writeKubeconfig(name, token string) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["controlplane"] = &clientcmdapi.Cluster{
		Server:                   fmt.Sprintf("https://127.0.0.1:%d", cp.port),
		CertificateAuthorityData: cp.caData,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["controlplane"] = &clientcmdapi.Context{Cluster: "controlplane", AuthInfo: name}
	config.CurrentContext = "controlplane"
	path := cp.kubeconfigPath(name)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing kubeconfig %s: %w", filepath.Base(path), err)
	}
	return path, nil
}
