// A client for the table of logins: sends one record with franz-go. It exits with 3 if the broker refuses the login.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const refused = 3

var (
	bootstrap = flag.String("bootstrap", "", "HOST:PORT")
	authority = flag.String("authority", "", "PEM file; with it, the client uses TLS")
	mechanism = flag.String("mechanism", "PLAIN", "SASL mechanism")
	user      = flag.String("user", "", "user, or principal without realm")
	service   = flag.String("service", "kafka", "service of the broker's principal")
	secret    = flag.String("secret", "", "password, token, or keytab")
)

func main() {
	flag.Parse()
	if err := produce(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, kerr.SaslAuthenticationFailed) || strings.Contains(err.Error(), "SASL_AUTHENTICATION_FAILED") {
			os.Exit(refused)
		}
		os.Exit(1)
	}
}

func produce() error {
	login, err := login()
	if err != nil {
		return err
	}
	options := []kgo.Opt{kgo.SeedBrokers(*bootstrap), kgo.SASL(login), kgo.AllowAutoTopicCreation()}
	if *authority != "" {
		pem, err := os.ReadFile(*authority)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: pool}))
	}
	kafka, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer kafka.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := kafka.Ping(ctx); err != nil {
		return err
	}
	return kafka.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("franz-go")}).FirstErr()
}

func login() (sasl.Mechanism, error) {
	switch *mechanism {
	case "PLAIN":
		return plain.Auth{User: *user, Pass: *secret}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: *user, Pass: *secret}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: *user, Pass: *secret}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: *secret}.AsMechanism(), nil
	case "GSSAPI":
		settings, err := config.Load(os.Getenv("KRB5_CONFIG"))
		if err != nil {
			return nil, err
		}
		keys, err := keytab.Load(*secret)
		if err != nil {
			return nil, err
		}
		realm := settings.LibDefaults.DefaultRealm
		kerberosClient := client.NewWithKeytab(*user, realm, keys, settings, client.DisablePAFXFAST(true))
		return kerberos.Auth{Client: kerberosClient, Service: *service}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("unknown mechanism %s", *mechanism)
}
