package plantroom

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"

	"github.com/smallstep/pkcs7"
)

const (
	// The value of /ByteRange is written when the file is complete; until then its place is kept.
	byteRangeWidth = 48
	// maxSignature is the room for the CMS structure: about 1 KiB with one P-256 certificate.
	maxSignature = 4096
)

// signature appends the signature dictionary (ISO 32000-1, 12.8.1) with both values left open.
func (doc *report) signature() {
	doc.object(objSignature, "<< /Type /Sig /Filter /Adobe.PPKLite /SubFilter /adbe.pkcs7.detached /M (D:%s) /Reason (Inspection completed)\n/ByteRange %*s\n/Contents <%0*d> >>",
		time.Now().UTC().Format("20060102150405Z"), byteRangeWidth, "", 2*maxSignature, 0)
	object := doc.Bytes()[doc.offsets[objSignature]:]
	at := func(key string) int { return doc.offsets[objSignature] + bytes.Index(object, []byte(key)) + len(key) }
	doc.byteRange = at("/ByteRange ")
	doc.contents = at("/Contents ")
	doc.gapSize = 2*maxSignature + 2
}

// sign fills in /ByteRange and, over all bytes outside the value of /Contents, the signature.
func (doc *report) sign() error {
	file := doc.Bytes()
	after := doc.contents + doc.gapSize
	copy(file[doc.byteRange:], fmt.Sprintf("[0 %d %d %d]", doc.contents, after, len(file)-after))
	signed := append(append([]byte(nil), file[:doc.contents]...), file[after:]...)
	cms, err := signDetached(signed)
	if err != nil {
		return err
	}
	if len(cms) > maxSignature {
		return fmt.Errorf("signature of %d bytes exceeds the %d reserved", len(cms), maxSignature)
	}
	hex.Encode(file[doc.contents+1:], cms) // the rest stays zero: DER says where it ends
	return nil
}

// signDetached returns a CMS SignedData (RFC 5652) over data without the data, with ECDSA P-256 and
// SHA-256. The certificate is valid from a week ago, so that a verifier whose clock is shifted in a
// test still accepts it.
func signDetached(data []byte) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{Organization: []string{"fieldgw test fixture"}, CommonName: "Plant room inspection"},
		NotBefore:             now.AddDate(0, 0, -7),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	envelope, err := pkcs7.NewSignedData(data)
	if err != nil {
		return nil, fmt.Errorf("make signed data: %w", err)
	}
	envelope.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := envelope.AddSigner(cert, key, pkcs7.SignerInfoConfig{}); err != nil {
		return nil, fmt.Errorf("add signer: %w", err)
	}
	envelope.Detach()
	return envelope.Finish()
}
